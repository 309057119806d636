/** What clients of this bench send, as text that is made as cheaply as can be. */
const said = "x".repeat(200);

/** A message of 200 bytes, with an id of its own. */
export function sendFrame(session: string, ref: number, id = `${session}-${ref}`): string {
  return `{"type":"send","ref":${ref},"session":"${session}","message":{"id":"${id}","parts":[{"type":"text","text":"${said}"}]}}`;
}

export function joinFrame(session: string, ref: number): string {
  return `{"type":"join","ref":${ref},"session":"${session}","lastSeq":0}`;
}

/** The parts of a message as they are stored. */
export const parts = [{ type: "text", text: said }];
