"""`wainwright kpa`: replays recorded loads through the decision core, and tells how autoscalers stand."""
