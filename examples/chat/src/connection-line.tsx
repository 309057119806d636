import type { ConnectionState } from "flotilla/client";
import { useClient } from "flotilla/react";
import { useEffect, useState } from "react";

/** How the connection is doing, and a way to try at once. */
export function ConnectionLine({ connection }: { connection: ConnectionState }) {
  const { reconnect } = useClient();
  const { status } = connection;
  const seconds = useSecondsLeft(connection);
  const canTry = status === "waiting" || status === "offline" || status === "refused";
  return (
    <div className="connection" data-status={status}>
      <span role="status">
        <i className="dot" aria-hidden="true" />
        {words(connection)}
      </span>
      {/* The count isn't read out: it would be every second. */}
      {status === "waiting" && seconds > 0 && <span aria-hidden="true">in {seconds} s</span>}
      {canTry && (
        <button className="small" onClick={() => reconnect()}>
          Try now
        </button>
      )}
    </div>
  );
}

function words(connection: ConnectionState): string {
  switch (connection.status) {
    case "open":
    case "idle":
      return "Online";
    case "connecting":
      return connection.attempt > 1 ? "Reconnecting" : "Connecting";
    case "waiting":
      return "Reconnecting";
    case "offline":
      return "Offline";
    case "refused":
      return `Refused: ${connection.error.message}`;
    case "closed":
      return "Closed";
  }
}

function useSecondsLeft(connection: ConnectionState): number {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    if (connection.status !== "waiting") return;
    const dueMs = performance.now() + connection.retryInMs;
    const count = () => setSeconds(Math.max(0, Math.ceil((dueMs - performance.now()) / 1_000)));
    count();
    const timer = setInterval(count, 500);
    return () => clearInterval(timer);
  }, [connection]);
  return seconds;
}
