"""Bridges to other libraries, one file each; nothing here is imported before it is used."""
