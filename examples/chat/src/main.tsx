import "./lib/no-eval.ts";
import { createClient } from "flotilla/client";
import { createChatTransport } from "flotilla/ai-sdk";
import { FlotillaProvider } from "flotilla/react";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import "./chat.css";
import { goTo, isAt } from "./lib/place.ts";
import { whoSpeaks } from "./lib/who.ts";

const { user, agent } = whoSpeaks();
// One connection for the side bar and for every chat.
const client = createClient({ user });
const transport = createChatTransport({
  client,
  agent,
  // An edited message begins a branch, which is a chat of its own. Its user may have gone elsewhere meanwhile.
  onFork: (fork, chatId) => isAt(chatId) && goTo(fork.sessionId),
});

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <FlotillaProvider client={client}>
      <App transport={transport} user={user} />
    </FlotillaProvider>
  </StrictMode>,
);
