"""One page of HTML about finished runs, complete in itself."""
