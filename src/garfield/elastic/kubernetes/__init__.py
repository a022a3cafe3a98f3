"""How jobs' workers and the operator speak with Kubernetes: plain HTTP, and no more than they need.

access     where the API server is and who we are: a pod's service account, or a kubeconfig
client     requests, and what their answers mean
naming     names of our kinds, labels and paths, in one place
"""
