// Hooks are named here, on the server, as any page does that only passes them on.
import { useConnection } from "flotilla/react";
import { Chat } from "./chat";

export default function Page() {
  return <Chat id={`a-chat-${typeof useConnection}`} />;
}
