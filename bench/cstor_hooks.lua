-- Posts each line of a file in turn, over and over, and prints calls, errors and latencies as JSON when the time is over.

local requests, sent = {}, 0

function init(args)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  for body in io.lines(args[1]) do
    table.insert(requests, wrk.format(nil, nil, nil, body))
  end
end

function request()
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end

function done(summary, latency, requests)
  local errors = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write
    + summary.errors.timeout
  print(string.format('{"calls":%d,"duration_s":%.6f,"errors":%d,"p50_ms":%.3f,"p99_ms":%.3f}',
    summary.requests, summary.duration / 1e6, errors, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
