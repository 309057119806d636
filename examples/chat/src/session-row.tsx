import type { InboxItem } from "flotilla/client";
import { useClient } from "flotilla/react";
import { memo, useState } from "react";
import { whenOf } from "./lib/notes.ts";
import { placeOf } from "./lib/place.ts";

type SessionRowProps = { item: InboxItem; user: string; isCurrent: boolean };

/** A chat in the side bar: what was said last, whether somebody answers, what is unread. */
export const SessionRow = memo(function SessionRow({ item, user, isCurrent }: SessionRowProps) {
  const { sessions } = useClient();
  const [isBusy, setBusy] = useState(false);
  const { sessionId, preview, previewAuthor, state, unread, activeAtMs } = item;
  const isArchived = item.status === "archived";
  const isAnswering = state !== "idle";
  const title = preview.trim() || "New chat";
  const shows = !isCurrent && unread > 0;

  const file = async () => {
    setBusy(true);
    try {
      await (isArchived ? sessions.unarchive(sessionId) : sessions.archive(sessionId));
    } catch {
      // The row stays as it is, and can be asked again.
    } finally {
      setBusy(false);
    }
  };

  return (
    <li className="row" data-unread={shows}>
      <a href={placeOf(sessionId)} aria-current={isCurrent ? "page" : undefined}>
        <span className="title">{title}</span>
        <span className="below">
          {isAnswering ? (
            <span className="answering">
              <i className="dot" aria-hidden="true" /> answering…
            </span>
          ) : (
            <span>{previewAuthor === user ? "you" : previewAuthor}</span>
          )}
          <time dateTime={new Date(activeAtMs).toISOString()}>{whenOf(activeAtMs)}</time>
        </span>
        {shows && (
          <span className="badge">
            {unread > 99 ? "99+" : unread}
            <span className="hidden"> unread</span>
          </span>
        )}
      </a>
      <button
        className="icon"
        disabled={isBusy}
        aria-label={`${isArchived ? "Bring back" : "Archive"}: ${title.slice(0, 40)}`}
        title={isArchived ? "Bring back" : "Archive"}
        onClick={() => void file()}
      >
        <svg viewBox="0 0 24 24" aria-hidden="true">
          <path
            d={
              isArchived
                ? "M4 8h16v11H4zM12 16v-5M9 13l3-3 3 3M6 5h12"
                : "M4 8h16v11H4zM10 12h4M6 5h12"
            }
          />
        </svg>
      </button>
    </li>
  );
});
