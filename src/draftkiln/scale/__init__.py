"""More than one machine: extraction over Ray, jobs for Slurm and Kubernetes, samples on object stores."""
