"""etcd as a service that the program deploys, grows and shrinks itself: the foundation where there is no Kubernetes."""
