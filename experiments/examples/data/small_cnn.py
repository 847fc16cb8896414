# Saves small_cnn.pt, which ../own_module.toml trains: python3 small_cnn.py (Debian: python3-torch).
import torch

torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2),
    torch.nn.ReLU(),
    torch.nn.Conv2d(8, 16, kernel_size=3, stride=2, padding=1),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(16 * 7 * 7, 10),
)
torch.jit.script(model).save("small_cnn.pt")
