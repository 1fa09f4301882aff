"""The same measurements in the originals that this library has the faces of, each in an environment of its own."""
