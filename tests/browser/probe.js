addEventListener("load", () => {
  for (const one of document.querySelectorAll("details")) one.open = true;
  const found = {
    width: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    seen: innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    outside: [],
    overlapping: [],
    links: [],
  };
  for (const picture of document.querySelectorAll("svg")) {
    const frame = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([name, box], place) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.outside.push(name);
      for (const [other, its] of texts.slice(place + 1)) {
        const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left);
        const high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
        if (wide > 1 && high > 4) found.overlapping.push(`${name} / ${other}`);
      }
    });
  }
  for (const link of document.querySelectorAll("a")) {
    const anchor = link.hash ? decodeURIComponent(link.hash.slice(1)) : null;
    found.links.push([link.getAttribute("href"), anchor === null || document.getElementById(anchor) !== null]);
  }
  document.body.textContent = JSON.stringify(found);
});
