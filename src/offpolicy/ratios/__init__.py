"""How rounds are weighted: by actions, by embeddings, by outcomes."""
