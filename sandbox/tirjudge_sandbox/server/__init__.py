"""The sandbox as a web service: routes, access control, and bounds on concurrent requests."""
