// Settings: the routing strategy, the vision adapter, and every provider with its accounts.

import { fill, h } from "./dom.js";
import { live } from "./live.js";
import { ProviderCard } from "./provider.js";
import { RoutingCard } from "./routing.js";
import { VisionCard } from "./vision.js";
import { wrongFiles } from "./wrong.js";

export function settingsPage(place, { signal }) {
  const routing = new RoutingCard();
  const vision = new VisionCard();
  const providers = h("div", { class: "cards below" });
  const others = h("p", { class: "dim others" });
  const wrong = wrongFiles();
  place.append(
    h("div", { class: "head" }, h("h1", {}, "Settings")),
    wrong.element,
    h("div", { class: "columns" }, routing.element, vision.element),
    h("h2", { class: "part" }, "Providers"),
    providers,
    others,
  );
  const cards = new Map();
  const draw = () => {
    wrong.show();
    routing.show();
    vision.show();
    showProviders(providers, cards);
    others.textContent = withoutAccounts();
  };
  live.addEventListener("view", draw, { signal });
  draw();
}

function showProviders(place, cards) {
  const known = live.view.providers.filter((each) => each.accounts.length);
  for (const provider of known) {
    if (!cards.has(provider.name)) cards.set(provider.name, new ProviderCard(provider));
    cards.get(provider.name).show(provider);
  }
  fill(
    place,
    known.map((provider) => cards.get(provider.name).element),
  );
}

function withoutAccounts() {
  const bare = live.view.providers.filter((each) => !each.accounts.length);
  if (!bare.length) return "";
  const titles = bare.map((each) => each.title).join(", ");
  return `Named by a combo, but without any account: ${titles}. Their usual variable, or an account in krouter.toml, makes them work.`;
}
