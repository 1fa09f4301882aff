"""The values that the hub keeps, and the tables that hold them."""
