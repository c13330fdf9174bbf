

def empty_per_multiprocessor(*size, device):
    return torch.empty(torch.cuda.get_device_properties(device).multi_processor_count, *size, device=device)
