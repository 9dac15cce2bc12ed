"""Pure rules that backends share. Nothing here reads a store, a clock or a machine."""
