"""What people do to records: one door for the API, the admin, the bot and the commands."""
