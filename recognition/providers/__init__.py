"""Engines behind the contract, each a module of its own; `recognition.registry` is the only door to them."""
