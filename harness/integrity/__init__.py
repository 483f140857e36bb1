"""Whether perplexities are made of probabilities: certificates, which a process of its own gives."""
