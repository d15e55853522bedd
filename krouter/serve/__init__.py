"""The local proxy: endpoints, keys, admin API."""
