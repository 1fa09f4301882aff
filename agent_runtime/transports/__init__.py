"""How the model and the library talk: what a reply means, one package for each way."""
