"""The paper's table and figures, and a bench of estimators in many worlds."""
