"""The queue: the stage table, acquiring, outcomes, and the only writers of the queue columns."""
