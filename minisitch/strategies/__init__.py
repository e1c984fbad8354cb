"""One file a published system; each registers one function from Graph and Device to FusionPlan."""
