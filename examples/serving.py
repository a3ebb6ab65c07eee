# %% [markdown]
# # Save a model and serve it
# A fitted model is a folder with JSON and safetensors. A server needs that folder and a few lines.

# %%
import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
from gallery import OPTIONS, budget
from sklearn.datasets import load_diabetes

from sikagp import SIKARegressor

# %% Train and save. No pickle, and no training data in the folder.
X, y = load_diabetes(return_X_y=True)
folder = OPTIONS.out / "served_model"
model = SIKARegressor(random_state=0, max_epochs=budget(300, 20)).fit(X, y)
model.save(folder)
for path in sorted(folder.rglob("*")):
    if path.is_file():
        print(f"{path.relative_to(folder)}: {path.stat().st_size / 1024:.0f} KiB")

# %% In another process: load, and answer requests with a mean and an interval.
loaded = SIKARegressor.load(folder)


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        low, high = loaded.predict_interval(rows, level=0.9)
        mean = loaded.predict(rows)
        answer = json.dumps({"mean": mean.tolist(), "low": low.tolist(), "high": high.tolist()})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()


# %% Ask it, and compare with the model that was trained here.
def ask(rows: np.ndarray) -> dict[str, list[float]]:
    body = json.dumps(rows.tolist()).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}", body) as reply:
        return json.load(reply)


answer = ask(X[:2])
print(answer)
assert np.array_equal(answer["mean"], model.predict(X[:2]))

# %% How long does one row take, request and all?
seconds = []
for row in X[: budget(200, 5)]:
    start = time.perf_counter()
    ask(row[None])
    seconds.append(time.perf_counter() - start)
print(f"one row: median {1000 * np.median(seconds):.1f} ms")
server.shutdown()
server.server_close()
