"""
How retries run.

Owns when (`processor`), who holds a task meanwhile (`holding`), what may hold it back (`breakers`), the call of the
user's callback (`running`), and what came of it (`settled`). Knows neither the queue nor the integration, which stand
on it.
"""
