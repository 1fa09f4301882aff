"""Every word that the model is told, as templates."""
