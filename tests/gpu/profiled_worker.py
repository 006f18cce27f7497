"""The worker extension with a profiler around its steps, for step_profile.py."""

import torch

from draftkiln.extract.worker import SinkExtension


class ProfiledExtension(SinkExtension):
    def _profile_memory(self):
        free, total = torch.cuda.mem_get_info()
        return {
            "allocated": torch.cuda.memory_allocated(),
            "peak": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "used": total - free,
        }

    def _profile_start(self):
        torch.cuda.synchronize()
        self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self._profiler.start()

    def _profile_stop(self, path):
        torch.cuda.synchronize()
        self._profiler.stop()
        self._profiler.export_chrome_trace(path)
