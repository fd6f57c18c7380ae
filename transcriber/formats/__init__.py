"""How moments are written, by language; with seconds, since operators compare them. Django knows the rest (FORMAT_MODULE_PATH)."""
