-- Posts the same body again and again and prints calls, errors and latencies as JSON when the time is over.

function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  wrk.headers["Content-Type"] = "application/json"
  file:close()
end

function done(summary, latency, requests)
  local errors = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write
    + summary.errors.timeout
  print(string.format('{"calls":%d,"duration_s":%.6f,"errors":%d,"p50_ms":%.3f,"p99_ms":%.3f}',
    summary.requests, summary.duration / 1e6, errors, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
