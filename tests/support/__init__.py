"""Servers, raw sockets and checks that the tests share."""
