"""The paper's table and figures, the studies, and the bench of estimators."""
