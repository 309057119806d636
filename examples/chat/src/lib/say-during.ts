import type { Client, FilePart, Part, Session } from "flotilla/client";

type Said = {
  client: Client;
  session: Session;
  text: string;
  files: FileList | undefined;
};

/**
 * Says something while an answer is made. Of an agent with `during: "steer"` that answer hears it at its next
 * step; others answer it next.
 */
export async function sayDuring({ client, session, text, files }: Said): Promise<void> {
  const parts: Part[] = [];
  for (const file of files ?? []) {
    const part: FilePart = await client.sessions.upload(session.sessionId, file);
    parts.push({ ...part });
  }
  if (text !== "") parts.push({ type: "text", text });
  await session.send(parts);
}
