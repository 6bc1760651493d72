"""The kernel on a device: softmax policies, Gaussian pooling and linear reward models in one sweep over the actions."""
