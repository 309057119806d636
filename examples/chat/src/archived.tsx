import { useClient, useInbox } from "flotilla/react";
import type { ReactNode } from "react";

/** What is archived can be read, and written in again once it was brought back. */
export function Archived({ chatId, children }: { chatId: string; children: ReactNode }) {
  const { sessions: calls } = useClient();
  const { sessions } = useInbox();
  const isArchived = sessions.some(
    ({ sessionId, status }) => sessionId === chatId && status === "archived",
  );
  if (!isArchived) return children;
  const bringBack = () => void calls.unarchive(chatId).catch(() => {});
  return (
    <div className="archived">
      <span>This chat is archived.</span>
      <button className="small" onClick={bringBack}>
        Bring it back
      </button>
    </div>
  );
}
