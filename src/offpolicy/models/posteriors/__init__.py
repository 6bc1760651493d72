"""Posteriors: from embeddings, how much each action speaks for a round."""
