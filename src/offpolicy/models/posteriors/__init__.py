"""Posteriors: how strongly each action is associated with a round, given embeddings."""
