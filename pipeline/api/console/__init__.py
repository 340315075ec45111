"""The console: a web page that shows the pipeline, from the public paths of the API."""
