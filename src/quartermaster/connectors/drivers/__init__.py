"""One module per protocol, or per family of protocols that differ only in words. Imported by the registry alone."""
