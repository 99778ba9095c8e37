"""Streams of events over HTTP (server-sent events)."""
