import { PageTitle } from "../parts/states.tsx";

export function OneThrottlePage() {
  return <PageTitle name="Throttle">Throttle</PageTitle>;
}
