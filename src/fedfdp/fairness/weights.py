"""How the server turns the clients' released losses into aggregation weights (post-processing: costs no privacy)."""


def fair_weight(loss: float, mean_loss: float, *, lam: float, low: float, high: float) -> float:
    """clamp(1 + λ_s(F̃_i − F), low, high): a client the model serves badly counts for more."""
    return min(max(1.0 + lam * (loss - mean_loss), low), high)
