"""Algorithms of published papers, made sound: imported only where a spec or a command names one."""
