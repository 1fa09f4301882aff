"""The same measurements in the originals whose interfaces this library has, each in an environment of its own."""
