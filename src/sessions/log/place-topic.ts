/** What `flotilla promote` asks pods on, before it moves the logs of sessions and while it does. */
export const placeTopic = "session.place";

/**
 * `ask`: whether the pod knows of moves, and can use the servers. `prepare`: it opens the streams that were
 * made. `leave`: it looks where the logs are, and says whether it serves nothing any more from where they were,
 * and has nothing of it that isn't archived. A pod that alone has messages which servers have lost refuses each.
 */
export type PlaceQuestion = {
  readonly step: "ask" | "prepare" | "leave";
  readonly from: "sql" | "nats";
};

export type PlaceAnswer = { readonly release: string; readonly hasLeft: boolean };
